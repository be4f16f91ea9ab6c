from stats import median, quantile

waiting_minutes = [12, 3, 5, 41]
print("half of all people waited less than", median(waiting_minutes))
print("nine of ten waited less than", quantile(waiting_minutes, 0.9))
